#!/usr/bin/env node
// The command line. A clone of the repository runs its sources; the published package has no `src` and runs what is compiled from it.
import { existsSync } from 'node:fs'

const sources = new URL('../src/node/cli/sluice.ts', import.meta.url)
await import(existsSync(sources) ? sources.href : new URL('../dist/node/cli/sluice.js', import.meta.url).href)
