/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. `usual`: those of `api: {}`. */
export const PART_KB: Readonly<Record<ApiRoutes | 'usual' | 'all', number>> = {
  limits: 11.6,
  usage: 12.4,
  audit: 13.7,
  switches: 13.8,
  stats: 14.2,
  tokens: 15.9,
  overrides: 16,
  openapi: 16.9,
  consumers: 17.6,
  keys: 17.9,
  why: 22.8,
  usual: 24.2,
  all: 44.1,
}
