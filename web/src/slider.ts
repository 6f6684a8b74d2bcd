// The noise slider: 0 to 100 on screen, sigma = highest * (position / 100)^3, so that low noise has most of the way.

export const STEPS = 100;

export function toSigma(position: number, highest: number): number {
  const share = Math.max(0, Math.min(1, position / STEPS));
  return highest * share ** 3;
}

export function toPosition(sigma: number, highest: number): number {
  return highest > 0 ? STEPS * Math.cbrt(Math.max(0, Math.min(1, sigma / highest))) : 0;
}

/**
 * Runs a task for the newest value only: while one is under way, later values replace each other, so that the answer
 * to the last slider move is never behind a queue of earlier ones.
 */
export function latest<T>(task: (value: T) => Promise<void>): (value: T) => void {
  let busy = false;
  let waiting: { value: T } | null = null;
  const turn = async (value: T): Promise<void> => {
    busy = true;
    try {
      await task(value);
    } finally {
      busy = false;
      const next = waiting;
      waiting = null;
      if (next) begin(next.value);
    }
  };
  const begin = (value: T) => void turn(value).catch(() => {}); // a task tells its own errors
  return (value) => {
    if (busy) waiting = { value };
    else begin(value);
  };
}
