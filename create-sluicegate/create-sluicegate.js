#!/usr/bin/env node
// `npm create sluicegate my-gateway` is `npx sluicegate init my-gateway`, without an installation before it.
const [major, minor] = process.versions.node.split('.').map(Number)

if (major < 22 || (major === 22 && minor < 18)) {
  console.error(`sluicegate needs Node 22.18 or newer. This is Node ${process.versions.node}.`)
  process.exitCode = 1
} else {
  const { run } = await import('sluicegate/cli')
  process.exitCode = await run(['init', ...process.argv.slice(2)])
}
