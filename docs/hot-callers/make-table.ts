/**
 * Puts the table of docs/hot-callers.md between its markers, from the simulation: `npm run plots`. It is seeded;
 * test/docs/hot-callers.test.ts fails when the page is stale.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { withTable } from '../reliability/tables.ts'
import { type LeaseFor, runShape, SHAPES } from './simulation.ts'

export const PAGE = new URL('../hot-callers.md', import.meta.url)

const SHOWN: readonly LeaseFor[] = [undefined, '250ms']

/** The page with its table as it should be. */
export async function withFigures(page: string): Promise<string> {
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
  console.log('Wrote the table of docs/hot-callers.md.')
}
