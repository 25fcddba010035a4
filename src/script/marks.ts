/** How the rules of a request are marked on the wire (ARGV[2]), a letter each. */
export const MARKS = { absent: '0', present: '1', enforce: 'e', shadow: 's', staysShadow: 'S' } as const
