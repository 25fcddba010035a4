import { expect } from 'vitest'
import type { HostileBed } from './gateways.ts'

/** Fails if anything went wrong. @param what of the origin or the client */
export function expectNoFaults({ gateway }: HostileBed, what: string, faults: readonly string[]): void {
  expect(faults, `${gateway}, ${what}:\n  ${faults.join('\n  ')}\n`).toEqual([])
}
