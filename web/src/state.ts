// What all pages share: language, theme, ticked runs; and two small hooks.

import { useEffect, useState } from "preact/hooks";

export type Language = "en" | "zh";

const store = {
  get(key: string): string | null {
    try {
      return localStorage.getItem(`splitveil-${key}`);
    } catch {
      return null; // private mode
    }
  },
  set(key: string, value: string): void {
    try {
      localStorage.setItem(`splitveil-${key}`, value);
    } catch {
      // private mode: the choice lasts as long as the page
    }
  },
};

/** A value that components follow. */
export class Shared<T> {
  private listeners = new Set<(value: T) => void>();

  constructor(private current: T) {}

  get value(): T {
    return this.current;
  }

  set(value: T): void {
    this.current = value;
    for (const listener of this.listeners) listener(value);
  }

  use(): T {
    const [value, update] = useState(this.current);
    useEffect(() => {
      update(this.current); // it may have changed between the first drawing and this moment
      this.listeners.add(update);
      return () => void this.listeners.delete(update);
    }, []);
    return value;
  }
}

const saved = store.get("lang") ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
export const language = new Shared<Language>(saved === "zh" ? "zh" : "en");
export const ticked = new Shared<readonly string[]>([]);

export function setLanguage(value: Language): void {
  store.set("lang", value);
  document.documentElement.lang = value;
  language.set(value);
}

/** The key is the report's, so that a report opened from here looks the same. */
export function startTheme(): void {
  const theme = store.get("theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset["theme"] = theme;
  document.documentElement.lang = language.value;
}

export function switchTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset["theme"]
    ? root.dataset["theme"] === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset["theme"] = dark ? "light" : "dark";
  store.set("theme", root.dataset["theme"]);
}

/**
 * Do something now and again after each pause, as long as the component is there and the page is visible.
 * `work` returns the milliseconds until the next time. `mark` is what it depends on.
 */
export function usePolling(work: (alive: () => boolean) => Promise<number>, mark: string): void {
  useEffect(() => {
    let here = true;
    let timer = 0;
    const turn = async () => {
      let pause = 4000;
      if (!document.hidden) {
        try {
          pause = await work(() => here);
        } catch {
          pause = 5000; // the server is away: keep asking, slowly
        }
      }
      if (here) timer = window.setTimeout(() => void turn(), pause);
    };
    void turn();
    return () => {
      here = false;
      window.clearTimeout(timer);
    };
  }, [mark]);
}
