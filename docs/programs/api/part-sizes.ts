/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 11.7,
  usage: 12.6,
  audit: 14.2,
  switches: 14.3,
  stats: 15,
  tokens: 16.4,
  overrides: 16.8,
  openapi: 18,
  consumers: 18.4,
  keys: 18.6,
  why: 23,
  usual: 25,
  all: 46,
}
