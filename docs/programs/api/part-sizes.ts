/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 9.8,
  usage: 10.7,
  audit: 11.4,
  stats: 12.6,
  switches: 13.5,
  tokens: 15.2,
  openapi: 15.2,
  overrides: 15.6,
  consumers: 17,
  keys: 17.4,
  why: 21,
  usual: 22.8,
  all: 42.2,
}
