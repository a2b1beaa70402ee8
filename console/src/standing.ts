// In the console a decision can become a standing rule. The entries of the console import this, and an element does not:
// so its one file is without the dialog.

import { lazy } from "react";
import { host } from "./host.ts";

host.Standing = lazy(() => import("./pages/decide/Standing.tsx").then(({ Standing }) => ({ default: Standing })));
