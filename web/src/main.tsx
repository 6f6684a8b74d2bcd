// The frame: header, pages by address, footer.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api } from "./api";
import "./app.css";
import { ComparePage } from "./compare";
import { LeakPage } from "./leak";
import { RunList } from "./list";
import { link, parseRoute } from "./route";
import { RunPage } from "./run";
import { StartPage } from "./start";
import { language, setLanguage, startTheme, switchTheme, ticked } from "./state";
import { say } from "./texts";
import { Tip, tip } from "./tip";

function App() {
  const lang = language.use();
  const chosen = ticked.use();
  const [route, setRoute] = useState(parseRoute(location.hash));
  const [session, setSession] = useState<{ version: string; folder: string; writable: boolean } | null>(null);
  useEffect(() => {
    const follow = () => {
      setRoute(parseRoute(location.hash));
      tip.set(null);
      window.scrollTo(0, 0);
    };
    addEventListener("hashchange", follow);
    api.session().then(setSession, () => {});
    return () => removeEventListener("hashchange", follow);
  }, []);
  const titles = { "": "nav.runs", compare: "nav.compare", start: "nav.start", leak: "nav.leak" } as const;
  const here = route.page in titles ? (route.page as keyof typeof titles) : "";
  useEffect(() => {
    document.title = `${route.page === "run" ? decodeURIComponent(route.args.get("id") ?? "") : say(titles[here])} · Splitveil`;
  }, [route, lang]);
  const tab = (page: keyof typeof titles, href = link(page)) => (
    <a href={href} aria-current={route.page === page ? "page" : undefined}>
      {say(titles[page])}
      {page === "compare" && chosen.length > 0 && <span class="count">{chosen.length}</span>}
    </a>
  );
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        {say("page.skip")}
      </a>
      <header class="top app-top">
        <h1>
          <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
            <path d="M3 5h8v14H3z" />
            <path class="veil" d="M13 5h2v2h-2zm4 0h2v2h-2zm-4 4h2v2h-2zm6 0h2v2h-2zm-3 2h2v2h-2zm-3 2h2v2h-2zm5 2h2v2h-2zm-5 2h2v2h-2zm3 0h2v2h-2z" />
          </svg>
          <a href={link("")}>Splitveil</a>
          {session && <span class="quiet root">{session.folder}</span>}
        </h1>
        <nav class="tabs" aria-label={say("page.menu")}>
          {tab("")}
          {tab("compare", link("compare", { id: chosen }))}
          {tab("start")}
          {tab("leak")}
        </nav>
        <div class="tools">
          <button type="button" id="language" aria-label={say("page.language_label")} onClick={() => setLanguage(lang === "en" ? "zh" : "en")}>
            {say("page.language")}
          </button>
          <button type="button" id="theme" aria-label={say("page.theme")} onClick={switchTheme}>
            <svg viewBox="0 0 16 16" aria-hidden="true">
              <circle cx="8" cy="8" r="6" />
              <path d="M8 2a6 6 0 0 1 0 12z" />
            </svg>
          </button>
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {route.page === "" && <RunList />}
        {route.page === "run" && <RunPage key={route.args.get("id") ?? ""} id={route.args.get("id") ?? ""} />}
        {route.page === "compare" && <ComparePage key={route.args.getAll("id").join(" ")} ids={route.args.getAll("id")} />}
        {route.page === "start" && <StartPage writable={session?.writable ?? true} />}
        {route.page === "leak" && <LeakPage id={route.args.get("id") ?? ""} />}
        {!["", "run", "compare", "start", "leak"].includes(route.page) && <p class="empty">{say("page.nowhere")}</p>}
      </main>
      <footer>
        <p>{say("page.footer", { version: session?.version ?? "" })}</p>
      </footer>
      <Tip />
    </>
  );
}

startTheme();
render(<App />, document.getElementById("app")!);
