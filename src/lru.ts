/** A least-recently-used cache, bounded in size and, optionally, in age. */

interface Entry<V> {
  value: V
  /** ms since the epoch */
  endsAt: number
}

interface Settings<V> {
  /** The `size` most recently used entries are always kept. The cache holds up to twice as many. */
  size: number
  /** How long a value is kept after its last `set`. */
  maxAgeMs?: number
  /** Called with each evicted entry. Not called for deleted keys. */
  onEviction?: (key: string, value: V) => void
}

/**
 * Two generations of entries: when the recent one is full, the older one is dropped. A single Map in order of use would be slow: each
 * eviction looks for the first key, and V8 walks over all keys that were deleted before it.
 */
export class Lru<V extends NonNullable<unknown>> {
  readonly #settings: Settings<V>
  #recent = new Map<string, Entry<V>>()
  #older = new Map<string, Entry<V>>()

  constructor(settings: Settings<V>) {
    this.#settings = settings
  }

  /** Reads a value and marks it as used. @returns undefined if the key is absent or its value too old */
  get(key: string): V | undefined {
    const entry = this.#find(key)
    if (entry && !this.#recent.has(key)) this.#put(key, entry)
    return entry?.value
  }

  /** Reads a value without marking it as used. */
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
    // On Workers, reading the clock is a call of the platform.
    const isForEver = this.#settings.maxAgeMs === undefined
    return entry && (isForEver || entry.endsAt > Date.now()) ? entry : undefined
  }

  #put(key: string, entry: Entry<V>): void {
    this.#older.delete(key)
    this.#recent.set(key, entry)
    const { size, onEviction } = this.#settings
    if (this.#recent.size < size) return
    if (onEviction) for (const [evicted, { value }] of this.#older) onEviction(evicted, value)
    this.#older = this.#recent
    this.#recent = new Map()
  }
}
