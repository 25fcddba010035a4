/** Documents about what was decided, and about whom. */
import type { CurrentLoad } from '../origin-load.ts'
import type { Stats } from '../stats.ts'
import type { BoundCheck } from '../stats-bounds.ts'
import type { Top } from '../top.ts'
import type { TopCallers } from '../top-callers.ts'
import { type Json, toJson } from './json.ts'

/** The counts, the load of the origin now, and the bounds that were checked. */
export type StatsDocument = Json<Stats & CurrentLoad & { checks?: readonly BoundCheck[] }>

export type LoadDocument = Json<CurrentLoad>

/** Whom each rule has refused most, since the start of an hour. */
export type TopCallersDocument = Json<TopCallers>

export type TopDocument = Json<Omit<Top, 'switches'>> & {
  switches: { kill: Json<Top['switches']['kill']> | null; rules: Record<string, unknown> }
}

export const statsDocument = (
  stats: Stats,
  load: CurrentLoad = {},
  checks?: readonly BoundCheck[],
): StatsDocument => toJson({ ...stats, ...load, ...(checks && { checks }) })

export const loadDocument = (load: CurrentLoad): LoadDocument => toJson(load)

export const topCallersDocument = (callers: TopCallers): TopCallersDocument => toJson(callers)

export const topDocument = ({ switches, ...top }: Top): TopDocument =>
  toJson({ ...top, switches: { kill: switches.kill ?? null, rules: Object.fromEntries(switches.rules) } })
