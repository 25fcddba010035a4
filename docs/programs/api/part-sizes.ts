/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 7.1,
  usage: 8,
  audit: 9,
  openapi: 9.2,
  stats: 9.8,
  switches: 11,
  tokens: 13,
  keys: 14,
  overrides: 14.4,
  consumers: 15.9,
  why: 19,
  usual: 23.2,
  all: 38.7,
}
