#!/usr/bin/env node
// The command line. A clone of the repository runs its sources; the published package has no `src` and runs what is compiled from it.
import { existsSync, readFileSync } from 'node:fs'

const { engines } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
const [, major, minor] = /^>=(\d+)\.(\d+)$/.exec(engines.node).map(Number)
const [ownMajor, ownMinor] = process.versions.node.split('.').map(Number)

if (ownMajor < major || (ownMajor === major && ownMinor < minor)) {
  console.error(`sluicegate needs Node ${major}.${minor} or newer. This is Node ${process.versions.node}.`)
  process.exitCode = 1
} else {
  const sources = new URL('../src/node/cli/sluice.ts', import.meta.url)
  await import(
    existsSync(sources) ? sources.href : new URL('../dist/node/cli/sluice.js', import.meta.url).href
  )
}
