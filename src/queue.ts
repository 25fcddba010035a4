/** The place of an item in a queue. The item keeps it. */
export interface Place<T> {
  readonly item: T
  isTaken: boolean
  previous: Place<T> | undefined
  next: Place<T> | undefined
}

/**
 * Distinct items, the longest waiting first. Any of them can leave.
 *
 * A Set does this too, but V8 leaves a gap where an item was deleted, and removes the gaps only from time to time. If items leave at the
 * front and return at the end, each look at the first item passes thousands of gaps.
 */
export class Queue<Name extends string, T extends { [name in Name]: Place<T> | undefined }> {
  readonly #name: Name
  #first: Place<T> | undefined
  #last: Place<T> | undefined
  #size = 0

  /** @param name the property in which an item keeps its place. It cannot be in two queues of one name */
  constructor(name: Name) {
    this.#name = name
  }

  get first(): T | undefined {
    return this.#first?.item
  }

  get size(): number {
    return this.#size
  }

  /** Appends an item, unless it is in the queue. */
  add(item: T): void {
    const place = this.#placeOf(item)
    if (place.isTaken) return
    place.isTaken = true
    place.previous = this.#last
    if (this.#last) this.#last.next = place
    else this.#first = place
    this.#last = place
    this.#size += 1
  }

  /** @returns whether the item was in the queue */
  delete(item: T): boolean {
    const place: Place<T> | undefined = item[this.#name]
    if (!place?.isTaken) return false
    const { previous, next } = place
    if (previous) previous.next = next
    else this.#first = next
    if (next) next.previous = previous
    else this.#last = previous
    this.#size -= 1
    place.isTaken = false
    place.previous = place.next = undefined
    return true
  }

  /** The items in order. The one that was returned last may leave, or move to the end, before the next one is asked for. */
  *[Symbol.iterator](): Generator<T, void> {
    for (let place = this.#first; place; ) {
      const { item, next } = place
      yield item
      place = next
    }
  }

  #placeOf(item: T): Place<T> {
    const known: Place<T> | undefined = item[this.#name]
    if (known) return known
    const place: Place<T> = { item, isTaken: false, previous: undefined, next: undefined }
    item[this.#name] = place as T[Name]
    return place
  }
}
