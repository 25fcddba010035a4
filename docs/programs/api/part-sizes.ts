/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 7.1,
  usage: 8,
  audit: 8.8,
  openapi: 9.1,
  stats: 10.2,
  switches: 11.5,
  tokens: 13.3,
  overrides: 14.9,
  keys: 15,
  consumers: 16.1,
  why: 18.6,
  usual: 23.7,
  all: 39,
}
