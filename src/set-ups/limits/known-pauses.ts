/**
 * The pauses that this process knows of, so that it refuses at once, and while the store does not answer. Plain data, bounded in number.
 *
 * A pause that the store has confirmed can be ended by another process, so every second one call asks the store again. One that the store
 * has not confirmed holds in this process until its end.
 */
import { createTurn, type Turn } from '../../trips/turn.ts'

/** All times by `elapsedMs`. */
export interface KnownPause {
  readonly endsAt: number
  /** As the store has said, or by the clock of this machine (µs since the epoch). */
  readonly pausedUntil: number
  readonly isConfirmed: boolean
  /** Of the call that asks the store. */
  readonly asking: Turn
}

const ASK_AFTER_MS = 1000

const MAX_PAUSES = 10_000

/** If there is no room, the pauses that have ended are looked for once in this time (ms). */
const SCAN_EVERY_MS = 1000

export type KnownPauses = ReturnType<typeof createKnownPauses>

/** @param elapsedMs ms since an arbitrary instant */
export function createKnownPauses(elapsedMs: () => number) {
  /** By the keys of the states, one in each line: those of a call, or the one of a pause. */
  const pauses = new Map<string, KnownPause>()
  let scannedAt = Number.NEGATIVE_INFINITY

  function makeRoom(): void {
    if (pauses.size < MAX_PAUSES) return
    const time = elapsedMs()
    if (time >= scannedAt + SCAN_EVERY_MS) {
      scannedAt = time
      for (const [id, { endsAt }] of pauses) if (endsAt <= time) pauses.delete(id)
    }
    for (const id of pauses.keys()) {
      if (pauses.size < MAX_PAUSES) return
      pauses.delete(id)
    }
  }

  function note(id: string, pause: Omit<KnownPause, 'asking'>): KnownPause {
    const before = pauses.get(id)
    const isLonger = before && before.endsAt > pause.endsAt
    // The store knows the whole truth about pauses that it has confirmed, and nothing of the others.
    if (isLonger && (!before.isConfirmed || !pause.isConfirmed)) return before
    if (!before) makeRoom()
    const noted = { ...pause, asking: createTurn(elapsedMs) }
    noted.asking.take(ASK_AFTER_MS)
    pauses.set(id, noted)
    return noted
  }

  return {
    isEmpty: () => pauses.size === 0,

    /** The pause of a call that ends last. @param keys of the states that it reads */
    find(keys: readonly string[]): KnownPause | undefined {
      const time = elapsedMs()
      let last: KnownPause | undefined
      for (const id of new Set([...keys, keys.join('\n')])) {
        const pause = pauses.get(id)
        if (pause && pause.endsAt <= time) pauses.delete(id)
        else if (pause && pause.endsAt > (last?.endsAt ?? 0)) last = pause
      }
      return last
    },

    /** Whether this call should ask the store whether the pause still holds. The others are refused until then. */
    shouldAsk(pause: KnownPause): boolean {
      if (!pause.isConfirmed || pause.asking.isTaken()) return false
      pause.asking.take(ASK_AFTER_MS)
      return true
    },

    /** Notes a pause before it is sent to the store. @param nowMs ms since the epoch */
    begin: (key: string, lengthMs: number, nowMs: number): KnownPause =>
      note(key, {
        endsAt: elapsedMs() + lengthMs,
        pausedUntil: (nowMs + lengthMs) * 1e3,
        isConfirmed: false,
      }),

    /**
     * Notes what the store has said.
     * @param instead a pause that this replaces
     * @param at µs, as `pausedUntil`
     */
    confirm(
      keys: readonly string[],
      { at, pausedUntil }: { at: number; pausedUntil: number },
      instead?: KnownPause,
    ): void {
      const id = keys.join('\n')
      if (instead !== undefined && pauses.get(id) === instead) pauses.delete(id)
      note(id, { endsAt: elapsedMs() + (pausedUntil - at) / 1e3, pausedUntil, isConfirmed: true })
    },

    /** The store has decided a call without a pause that it had confirmed before. */
    forget(pause: KnownPause): void {
      for (const [id, each] of pauses) if (each === pause) pauses.delete(id)
    },

    /** The pause of an identity was ended. @param isDone false: the store has not confirmed it, and only knows what it confirmed before */
    end(key: string, isDone: boolean): void {
      for (const [id, { isConfirmed }] of pauses)
        if (id.split('\n').includes(key) && (isDone || !isConfirmed)) pauses.delete(id)
    },
  }
}
