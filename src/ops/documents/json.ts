/** The form of all documents: plain JSON, as the command line prints it. New versions only add fields. */

/** A value as JSON has it: a time is an ISO 8601 text (UTC). */
export type Json<T> = T extends Date ? string : T extends object ? { [K in keyof T]: Json<T[K]> } : T

export const toJson = <T>(value: T) => JSON.parse(JSON.stringify(value)) as Json<T>
