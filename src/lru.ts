/** Memory of an isolate that is bounded in number and time: what was not used lately is forgotten first. */

interface Entry<V> {
  value: V
  /** ms since the epoch */
  endsAt: number
}

interface Settings {
  /** So many that were used last are surely there; up to twice as many are kept. */
  size: number
  /** After its last `set` a value is kept no longer. */
  maxAgeMs?: number
  /** Called with each key that is pushed out, not with keys that are deleted. */
  onEviction?: (key: string) => void
}

/**
 * Two generations: when the younger is full, the older is forgotten. A Map that is kept in exact order would have to find its
 * first key at each eviction, and V8 walks over all keys that were deleted before it.
 */
export class Lru<V extends NonNullable<unknown>> {
  readonly #settings: Settings
  #recent = new Map<string, Entry<V>>()
  #older = new Map<string, Entry<V>>()

  constructor(settings: Settings) {
    this.#settings = settings
  }

  /** @returns undefined for what is not there or too old; what is there counts as used */
  get(key: string): V | undefined {
    const entry = this.#find(key)
    if (entry && !this.#recent.has(key)) this.#put(key, entry)
    return entry?.value
  }

  /** As `get`, without use. */
  peek(key: string): V | undefined {
    return this.#find(key)?.value
  }

  set(key: string, value: V): void {
    const { maxAgeMs } = this.#settings
    this.#put(key, {
      value,
      endsAt: maxAgeMs === undefined ? Number.POSITIVE_INFINITY : Date.now() + maxAgeMs,
    })
  }

  delete(key: string): void {
    this.#recent.delete(key)
    this.#older.delete(key)
  }

  #find(key: string): Entry<V> | undefined {
    const entry = this.#recent.get(key) ?? this.#older.get(key)
    return entry && entry.endsAt > Date.now() ? entry : undefined
  }

  #put(key: string, entry: Entry<V>): void {
    this.#older.delete(key)
    this.#recent.set(key, entry)
    const { size, onEviction } = this.#settings
    if (this.#recent.size < size) return
    if (onEviction) for (const forgotten of this.#older.keys()) onEviction(forgotten)
    this.#older = this.#recent
    this.#recent = new Map()
  }
}
