/** What stands in a Worker for a part that its config did not use when it was built (src/built/). */

/** @param what the Worker does not have, as in `the part 'cors'` */
export function builtForAnotherConfig(what: string): Error {
  return new Error(
    `The Worker was built for another config: it does not have ${what}. Build it again with npx sluice build.`,
  )
}

/** @returns a function that throws */
export function notBuilt(part: string): () => never {
  return () => {
    throw builtForAnotherConfig(`the part '${part}'`)
  }
}
