// The one tooltip of the page.

import { useLayoutEffect, useRef } from "preact/hooks";
import { Shared } from "./state";

export const tip = new Shared<{ text: string; x: number; y: number } | null>(null);

export function Tip() {
  const shown = tip.use();
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!shown || !element.current) return;
    const box = element.current.getBoundingClientRect();
    const left = shown.x + 14 + box.width > innerWidth ? shown.x - 14 - box.width : shown.x + 14;
    element.current.style.left = `${Math.max(6, left)}px`;
    element.current.style.top = `${Math.max(6, Math.min(innerHeight - box.height - 6, shown.y - box.height / 2))}px`;
  });
  return (
    <div id="tip" role="status" hidden={!shown} ref={element}>
      {shown?.text}
    </div>
  );
}
