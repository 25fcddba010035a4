/** JSON Schema 2020-12, as far as the API uses it: the schemas check the input (check-input.ts), and stand in the OpenAPI document as they are. */

declare const VALUE: unique symbol

/** @typeParam T of the values that it admits */
export interface InputSchema<T = unknown> {
  readonly [VALUE]?: T
  readonly type?: 'string' | 'number' | 'integer' | 'boolean' | 'null' | 'array' | 'object'
  readonly enum?: readonly string[]
  readonly anyOf?: readonly InputSchema[]
  readonly minLength?: number
  readonly maxLength?: number
  readonly pattern?: string
  readonly minimum?: number
  readonly maximum?: number
  readonly items?: InputSchema
  readonly minItems?: number
  readonly maxItems?: number
  readonly properties?: Readonly<Record<string, InputSchema>>
  readonly required?: readonly string[]
  readonly propertyNames?: InputSchema<string>
  /** false: no others than `properties`; absent: any. */
  readonly additionalProperties?: InputSchema | false
}

export type InputOf<S> = S extends InputSchema<infer T> ? T : never

export const text = (maxLength: number, minLength = 1): InputSchema<string> => ({
  type: 'string',
  minLength,
  maxLength,
})

export const textOf = (pattern: string): InputSchema<string> => ({ type: 'string', pattern })

export const integer = (minimum: number, maximum: number): InputSchema<number> => ({
  type: 'integer',
  minimum,
  maximum,
})

export const oneOf = <W extends string>(...words: W[]): InputSchema<W> => ({ enum: words, type: 'string' })

export const anyOf = <S extends InputSchema[]>(...schemas: S): InputSchema<InputOf<S[number]>> => ({
  anyOf: schemas,
})

export const nullable = <T>(schema: InputSchema<T>): InputSchema<T | null> =>
  anyOf(schema, { type: 'null' } as InputSchema<null>)

/** An object with members of any names. */
export const byName = <T>(
  propertyNames: InputSchema<string>,
  values: InputSchema<T>,
): InputSchema<Record<string, T>> => ({ type: 'object', propertyNames, additionalProperties: values })

/** @param members those whose name ends with `?` may be absent */
export function object<M extends Record<string, InputSchema>>(members: M): InputSchema<ObjectOf<M>> {
  const entries = Object.entries(members)
  return {
    type: 'object',
    properties: Object.fromEntries(entries.map(([name, schema]) => [name.replace('?', ''), schema])),
    required: entries.flatMap(([name]) => (name.endsWith('?') ? [] : name)),
    additionalProperties: false,
  }
}

type ObjectOf<M> = { [K in keyof M as K extends `${string}?` ? never : K]: InputOf<M[K]> } & {
  [K in keyof M as K extends `${infer Name}?` ? Name : never]?: InputOf<M[K]>
}
