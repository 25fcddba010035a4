/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 7.2,
  usage: 8.2,
  audit: 8.9,
  stats: 10.2,
  switches: 11.6,
  openapi: 12.9,
  tokens: 13.3,
  overrides: 14.9,
  keys: 14.6,
  consumers: 16.1,
  why: 18.7,
  usual: 23.2,
  all: 40.5,
}
