#!/usr/bin/env node
// `npm create sluicegate my-gateway` is `npx sluicegate init my-gateway`, without an installation before it.
import { run } from 'sluicegate/cli'

process.exitCode = await run(['init', ...process.argv.slice(2)])
