/**
 * The memory of an isolate for bodies that are being read. Callers that the isolate has admitted before share three quarters of it. All others
 * share the rest: their keys may be made up, so that they count by address. A caller that fills its own share takes no room from others.
 */
import { Lru } from '../lru.ts'

/** An isolate of Cloudflare has 128 MB. */
const TOTAL_BYTES = 32_000_000
const OF_KNOWN = 0.75

/** A body up to this size may use more of the room of others, so that a few large bodies do not keep all others out. */
const SMALL_BYTES = 32_768

/** Callers that are remembered. */
const MAX_KNOWN = 10_000

/** The room that one body takes. */
export interface BodyHold {
  /** Whether its caller was admitted before. Then it may wait for room. */
  isKnown: boolean
  /** @returns false if there is no room; then nothing was taken */
  take(bytes: number): boolean
  /** Gives back so many bytes, by default all. */
  give(bytes?: number): void
}

export interface BodyRoom {
  /**
   * @param caller its credential, or its address without one; known if it was admitted before
   * @param isVerified the caller is known without that
   * @param address of a caller that is not known
   */
  open(caller: string, isVerified: boolean, address: string): BodyHold
  /** The caller was admitted. */
  remember(caller: string): void
}

export function createBodyRoom(totalBytes = TOTAL_BYTES): BodyRoom {
  const admitted = new Lru<true>({ size: MAX_KNOWN })
  const known = createShares(totalBytes * OF_KNOWN)
  const others = createShares(totalBytes * (1 - OF_KNOWN))
  return {
    open(caller, isVerified, address) {
      const isKnown = isVerified || admitted.get(caller) === true
      const hold = isKnown ? known(caller) : others(address)
      return { isKnown, ...hold }
    },
    remember: caller => admitted.set(caller, true),
  }
}

/**
 * Divides room among names. One may take as much as would then still be free: alone half of the room, with another one a third. Small bodies
 * may take three times that.
 */
function createShares(totalBytes: number): (name: string) => Pick<BodyHold, 'take' | 'give'> {
  const held = new Map<string, number>()
  let free = totalBytes

  function add(name: string, bytes: number): void {
    const sum = (held.get(name) ?? 0) + bytes
    free -= bytes
    if (sum > 0) held.set(name, sum)
    else held.delete(name)
  }

  return name => {
    let own = 0
    return {
      take(bytes) {
        const share = (free - bytes) * (own + bytes <= SMALL_BYTES ? 3 : 1)
        if ((held.get(name) ?? 0) + bytes > share) return false
        own += bytes
        add(name, bytes)
        return true
      },
      give(bytes = own) {
        const given = Math.min(bytes, own)
        own -= given
        if (given > 0) add(name, -given)
      },
    }
  }
}
