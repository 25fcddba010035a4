/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 8.9,
  usage: 9.8,
  audit: 10.5,
  switches: 11.8,
  stats: 11.9,
  tokens: 13.6,
  openapi: 14.4,
  keys: 15.3,
  overrides: 15.4,
  consumers: 16.7,
  why: 20.3,
  usual: 22.7,
  all: 41.9,
}
