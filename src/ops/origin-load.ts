/** Reads how much room the origin has now. */
import type { Config } from '../config/compile.ts'
import { isShared, type WorkerUtilization } from '../config/compile-shedding.ts'
import {
  type CurrentLoad,
  prepareAdaptive,
  prepareFleet,
  prepareUtilization,
  type UtilizationLoad,
} from '../metrics/current-load.ts'
import { gatewayRuleSet } from '../script/compiled.ts'
import { signalScript } from '../script/signal-text.ts'
import type { BoardOptions } from '../shedding/signal-board.ts'
import { NO_PERMISSION } from '../store/refusal.ts'
import { AdminError } from './admin-error.ts'
import type { AdminStore } from './admin-store-shape.ts'
import { answerOf } from './limits.ts'

export type { AdaptiveLoad, CurrentLoad, LevelLoad, UtilizationLoad } from '../metrics/current-load.ts'

const OPTIONS: BoardOptions = { now: Date.now, script: signalScript }

/** @throws AdminError `store` */
export async function readLoad(store: AdminStore, config: Config): Promise<CurrentLoad> {
  const { workerUtilization } = config.shedding ?? {}
  const adaptive = config.adaptive && (await answerOf(store, prepareAdaptive(config.adaptive, OPTIONS)))
  const fleet = prepareFleet(config, gatewayRuleSet(config), Date.now())
  return {
    ...(fleet && { fleetUsage: (await answerOf(store, fleet))(adaptive?.limit) }),
    ...(adaptive && { adaptive }),
    ...(workerUtilization &&
      isShared(workerUtilization) && { workerUtilization: await readUtilization(store, workerUtilization) }),
  }
}

/**
 * As `readLoad`. A token that is read-only can read the counters, but cannot run the scripts that read the load of the origin.
 * @param onRefused gets the reason if there is no load
 */
export async function readLoadIfPermitted(
  store: AdminStore,
  config: Config,
  onRefused: (error: AdminError) => void = () => {},
): Promise<CurrentLoad> {
  try {
    return await readLoad(store, config)
  } catch (error) {
    if (!(error instanceof AdminError) || !NO_PERMISSION.test(error.message)) throw error
    onRefused(error)
    return {}
  }
}

/** @param options tests pass a clock */
export const readUtilization = (
  store: AdminStore,
  settings: WorkerUtilization,
  options = OPTIONS,
): Promise<UtilizationLoad> => answerOf(store, prepareUtilization(settings, options))
