/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 11.8,
  usage: 12.7,
  audit: 13.4,
  switches: 14,
  stats: 14.4,
  tokens: 15.9,
  overrides: 16.2,
  openapi: 17.1,
  consumers: 17.7,
  keys: 18.1,
  why: 23,
  usual: 23.9,
  all: 43.6,
}
