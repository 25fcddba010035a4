/**
 * Puts the tables about leases into docs/internals/simulations.md, from the simulation: `npm run plots`. It is seeded;
 * test/docs/hot-callers.test.ts fails when the page is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Change } from '../../../test/support/lease-fleet.ts'
import { withTable } from '../reliability/tables.ts'
import { type LeaseFor, runShape, SHAPES } from './simulation.ts'
import { CHANGES, stalenessOf, TRAFFIC } from './staleness.ts'

export const PAGE = new URL('../../internals/simulations.md', import.meta.url)

const SHOWN: readonly LeaseFor[] = [undefined, '250ms']

/** The page with its tables as they should be. */
export async function withFigures(page: string): Promise<string> {
  return await withStaleness(await withShapes(page))
}

async function withStaleness(page: string): Promise<string> {
  const rows: string[][] = []
  for (const [change, { what, atMost, mostMs }] of Object.entries(CHANGES)) {
    for (const lease of SHOWN) {
      const found = []
      for (const traffic of TRAFFIC) found.push(await stalenessOf(change as Change, lease, traffic))
      if (found.some(({ longestAlone }) => longestAlone > mostMs(lease)))
        throw new Error(`${what}: later than the page says.`)
      const times = found.map(({ longest }) => `${Math.round(longest)} ms`)
      rows.push([lease ? '' : what, lease ?? 'none', ...times, atMost(lease)])
    }
  }
  return withTable(page, 'staleness', {
    head: ['change', 'lease', ...TRAFFIC.map(({ what }) => what), 'at most'],
    rows,
  })
}

async function withShapes(page: string): Promise<string> {
  const rows: string[][] = []
  for (const shape of SHAPES) {
    for (const lease of SHOWN) {
      const { tripsPerRequest, overspent, excess, held, utilization } = await runShape(shape, lease)
      rows.push([
        ...[lease ? '' : shape.what, lease ?? 'none', tripsPerRequest.toFixed(3)],
        ...[String(overspent), String(excess), String(held), `${(100 * utilization).toFixed(1)}%`],
      ])
    }
  }
  return withTable(page, 'shapes', {
    head: ['traffic', 'lease', 'trips per request', 'spent above the limit', 'excess', 'bound', 'used'],
    rows,
  })
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(PAGE, await withFigures(readFileSync(PAGE, 'utf8')))
  console.log('Wrote the tables of docs/internals/simulations.md.')
}
