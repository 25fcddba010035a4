/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 6.7,
  usage: 7.6,
  audit: 8.6,
  openapi: 8.9,
  stats: 9.2,
  switches: 10.8,
  tokens: 12.7,
  keys: 13.7,
  overrides: 14.6,
  consumers: 15.6,
  why: 20,
  usual: 22.7,
  all: 38,
}
