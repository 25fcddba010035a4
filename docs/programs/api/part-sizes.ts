/** What the parts of the API add to a Worker with the shipped config (kB, gzip), each with what all parts share. test/docs/sizes.test.ts measures it. */
import type { ApiRoutes } from '../../../src/config/check/schema.ts'

/** `limits` without the limits themselves, which a service binding has, too. */
export const PART_KB: Readonly<Record<ApiRoutes | 'all', number>> = {
  limits: 12.6,
  usage: 13.4,
  audit: 16.8,
  switches: 16.9,
  stats: 17.8,
  openapi: 18.5,
  tokens: 19.9,
  overrides: 19.9,
  keys: 22.3,
  consumers: 22.3,
  why: 22.9,
  all: 48.9,
}
