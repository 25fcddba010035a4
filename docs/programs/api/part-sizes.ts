/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 11.7,
  usage: 12.7,
  audit: 13.3,
  switches: 13.9,
  stats: 14.3,
  tokens: 15.8,
  overrides: 16.1,
  openapi: 17.1,
  consumers: 17.6,
  keys: 18,
  why: 22.9,
  usual: 23.8,
  all: 43.5,
}
