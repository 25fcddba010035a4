/** The base-62 alphabet, for API keys, the tags of rules and the names of isolates. */
export const BASE62 = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
