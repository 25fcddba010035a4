/** What stands in src/built/ for a part that the config did not use when it was built. */

/** @param what there is not, as in `the part 'cors'` */
export function builtForAnotherConfig(what: string): Error {
  return new Error(`src/built/ was built for another config: it lacks ${what}. Run npx sluicegate build.`)
}

const notBuilt = new Proxy(
  {},
  {
    get: (_, part) => () => {
      throw builtForAnotherConfig(`the part '${String(part)}'`)
    },
  },
)

/** Only these parts: each other one is a function that throws. */
export function only<T extends object>(parts: Partial<NoInfer<T>>): T {
  return Object.setPrototypeOf(parts, notBuilt)
}
