/** Work that goes on after a call was answered. */
import type { Background } from '../../background.ts'
import type { Store } from '../../store/store.ts'
import type { LimiterSettings } from './settings.ts'

/** If the platform refuses the task, for example because the request has ended, the task runs on as long as it can. */
export function keptAliveBy(waitUntil: NonNullable<LimiterSettings['waitUntil']>): Background {
  return task => {
    const quiet = task.catch(() => {})
    try {
      waitUntil(quiet)
    } catch {
      // An exception would lose a decision whose units are already taken.
    }
  }
}

/** The store, each of whose trips is kept alive. */
export function keepingAlive(store: Store, background: Background): Store {
  const kept = <T>(trip: Promise<T>) => {
    background(trip)
    return trip
  }
  return { ...store, run: calls => kept(store.run(calls)), ping: () => kept(store.ping()) }
}
