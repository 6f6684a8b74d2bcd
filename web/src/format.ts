// How numbers are written: the same rules as in the report, so that a quantity looks the same everywhere.

export const DASH = "–";
type Maybe = number | null | undefined;

const known = (value: Maybe): value is number => typeof value === "number" && Number.isFinite(value);
const minus = (text: string) => text.replace("-", "−");

/** A fraction as per cent. */
export function percent(value: Maybe, digits = 1): string {
  return known(value) ? `${minus((100 * value).toFixed(digits))}\u00a0%` : DASH;
}

/** Four decimals; scientific below one thousandth, where four decimals would hide the number. */
export function mse(value: Maybe): string {
  if (!known(value)) return DASH;
  return value >= 1e-3 || value === 0 ? value.toFixed(4) : value.toExponential(1).replace("-", "−");
}

export function ssim(value: Maybe): string {
  return known(value) ? minus(value.toFixed(2)) : DASH;
}

/** Four significant digits. */
export function plain(value: Maybe): string {
  if (!known(value)) return DASH;
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-4 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return minus(text);
}

/** A noise level: two significant digits, at most four decimals. */
export function noise(value: Maybe): string {
  if (!known(value)) return DASH;
  return value === 0 ? "0" : String(Number(value.toPrecision(value < 0.01 ? 1 : 2)));
}

/** A count, with thin spaces between thousands. */
export function whole(value: number): string {
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

export function duration(seconds: Maybe): string {
  if (!known(seconds) || seconds < 0) return DASH;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)}\u00a0s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes}\u00a0min`;
  return `${Math.floor(minutes / 60)}\u00a0h\u00a0${String(minutes % 60).padStart(2, "0")}\u00a0min`;
}

/** An ISO time as local date and time; whatever is no time stays as it is. */
export function moment(text: string | null | undefined): string {
  if (!text) return DASH;
  const when = new Date(text);
  if (Number.isNaN(when.getTime())) return text;
  const two = (part: number) => String(part).padStart(2, "0");
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())} ${two(when.getHours())}:${two(when.getMinutes())}`;
}
