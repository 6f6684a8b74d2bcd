// Addresses inside the page: "#/run?id=a". The part before "?" is the page, the rest are its arguments.

export interface Route {
  page: string;
  args: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [page = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return { page, args: new URLSearchParams(query) };
}

export function link(page: string, args: Record<string, string | readonly string[]> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args)) {
    for (const one of typeof value === "string" ? [value] : value) query.append(name, one);
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}
