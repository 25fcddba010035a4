/**
 * Counts what a set-up touches: each call of what the platform, the config, the framework or the app passes to it. The touch that is due
 * throws. So a test can let every single touch of a request throw, one after the other, without a list of them.
 */

/** How the touch that is due fails: instead of its work, or after it. */
export type Failing = 'throws' | 'works, and then throws'

export class TouchError extends Error {
  constructor(what: string) {
    super(`The test throws at: ${what}`)
  }
}

type Fn = (...args: never[]) => unknown

export class Touches {
  #count = 0
  readonly #due: number
  readonly #failing: Failing
  #isOver = false
  /** What has thrown. Undefined if fewer touches than the due one have happened. */
  thrown: string | undefined

  /** @param due the number of the touch that throws, from 1 */
  constructor(due: number, failing: Failing) {
    this.#due = due
    this.#failing = failing
  }

  /** From now on nothing throws. */
  end(): void {
    this.#isOver = true
  }

  #isDue(what: string): boolean {
    if (this.#isOver || ++this.#count !== this.#due) return false
    this.thrown = what
    return true
  }

  /** Returns a function whose calls are touches. A function that returns a promise rejects after its work. */
  fn<F extends Fn>(what: string, work: F): F {
    const touch = (...args: never[]): unknown => {
      if (!this.#isDue(what)) return work(...args)
      if (this.#failing === 'throws') throw new TouchError(what)
      const result = work(...args)
      if (!(result instanceof Promise)) throw new TouchError(what)
      return result.then(() => {
        throw new TouchError(what)
      })
    }
    return touch as F
  }

  /**
   * Returns an object like the given one. The calls of its methods and the changes of its properties are touches.
   * @param getters whether reading a property is a touch, too
   */
  of<T extends object>(what: string, target: T, { getters = false } = {}): T {
    return new Proxy(target, {
      get: (_, name) => {
        const named = `${what}.${String(name)}`
        const read = () => Reflect.get(target, name, target) as unknown
        const value = getters ? this.fn(named, read)() : read()
        if (typeof value !== 'function' || typeof name === 'symbol') return value
        return this.fn(named, (value as Fn).bind(target) as Fn)
      },
      set: (_, name, value) =>
        typeof name === 'symbol'
          ? Reflect.set(target, name, value, target)
          : this.fn(`${what}.${name} =`, () => Reflect.set(target, name, value, target))(),
    })
  }
}
