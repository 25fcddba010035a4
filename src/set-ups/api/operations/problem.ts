/** The body of each reply that is not a success, in the OpenAPI document. */

export const PROBLEM = {
  Problem: `type, title, status: integer, detail, requestId, errors?: Mistake[], scope?, id?,
    violated-policies?: string[], change?: (none|unknown)`,
  Mistake: 'pointer, detail',
}
