/** What commands print about the load of the origin. */
import type { AdaptiveLoad, CurrentLoad, LevelLoad, UtilizationLoad } from '../../ops/origin-load.ts'
import { alertCell, table } from './output.ts'

/** One text for each part of the load that the config uses. */
export function loadTexts({ fleetUsage, adaptive, workerUtilization }: CurrentLoad): string[] {
  return [
    ...(fleetUsage ? [fleetTable(fleetUsage)] : []),
    ...(adaptive ? [adaptiveText(adaptive)] : []),
    ...(workerUtilization ? [utilizationText(workerUtilization)] : []),
  ]
}

function fleetTable(levels: readonly LevelLoad[]): string {
  const rows = levels.map(({ rule, classes, inFlight, limit }) => {
    const free = Math.max(0, limit - inFlight)
    return [
      ...[rule, classes.join(', '), String(inFlight), String(limit)],
      free === 0 ? alertCell('0') : String(free),
    ]
  })
  return table(['FLEET USAGE', 'CLASSES', 'IN FLIGHT', 'LIMIT', 'FREE'], rows)
}

function adaptiveText({ limit, min, max, latencyMs, baselineMs }: AdaptiveLoad): string {
  const latency =
    baselineMs === 0
      ? 'The latency of the origin is not known yet.'
      : `Latency of the origin: ${Math.round(latencyMs)} ms, usually ${Math.round(baselineMs)} ms.`
  return `Adaptive limit: ${limit} requests in flight (from ${min} to ${max}). ${latency}`
}

function utilizationText({
  utilization,
  pressureMs,
  refusesFromMs,
  fullMs,
  classes,
}: UtilizationLoad): string {
  const rows = classes.map(({ rule, refused }) => {
    const percent = `${Math.round(1000 * refused) / 10} %`
    return [rule, refused > 0 ? alertCell(percent) : percent]
  })
  const signal = utilization === undefined ? 'no signal' : `${Math.round(100 * utilization)} %`
  const seconds = (ms: number) => `${Math.round(ms / 1000)} s`
  return [
    `Worker utilization: ${signal}. Pressure: ${seconds(pressureMs)}; callers are refused from ${seconds(refusesFromMs)} on, all at ${seconds(fullMs)}.`,
    table(['WORKER UTILIZATION', 'REFUSED CALLERS'], rows),
  ].join('\n')
}
