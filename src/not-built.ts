/** Replaces the parts that a built Worker leaves out because its config does not use them. */

/** @param what the name of the missing piece, as in `the part 'cors'` */
export function notBuiltError(what: string): Error {
  return new Error(`src/built/ was built for another config: it lacks ${what}. Run npx sluicegate build.`)
}

const notBuilt = new Proxy(
  {},
  {
    get: (_, part) => () => {
      throw notBuiltError(`the part '${String(part)}'`)
    },
  },
)

/** An object with the given parts. Every other property is a function that throws. */
export function withMissingParts<T extends object>(parts: Partial<NoInfer<T>>): T {
  return Object.setPrototypeOf(parts, notBuilt)
}
