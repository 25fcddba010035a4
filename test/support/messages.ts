/**
 * Collects the texts that src shows to people, from its syntax trees. A placeholder is shown as `${rule}` if it has a name, and as
 * `${…}` otherwise. A choice between texts is shown with all of them: `{1 key|${keys} keys}`.
 */
import { parseAst } from 'vitest/node'

export interface Message {
  /** The code, the kind or the place of an error; the status and title of a reply; the level of a log line. */
  code?: string
  text: string
}

/** A node of the syntax tree (ESTree with TypeScript). Only the parts that this module reads. */
interface Node {
  type: string
  [key: string]: unknown
}

/** The messages of one file, in the order of the file. */
export function messagesIn(source: string, file: string): Message[] {
  const found: Message[] = []
  visit(parseAst(source, { lang: 'ts' }, file) as unknown as Node)
  return found

  function visit(node: Node): void {
    if (isSkipped(node)) return
    const text = render(node)
    if (text !== undefined) {
      if (isMessage(text)) found.push({ text })
      for (const inner of innerOf(node)) visit(inner)
      return
    }
    const message = problemIn(node) ?? logLineIn(node) ?? codedMessageIn(node)
    if (message) found.push(message.shown)
    for (const other of message?.rest ?? childrenOf(node)) visit(other)
  }
}

/** A message, and the parts of its node that have not been visited yet. */
interface Found {
  shown: Message
  rest: Node[]
}

/** Finds `{ status, title, detail }`, the parts of a reply. */
function problemIn(node: Node): Found | undefined {
  const { status, title, detail, ...others } = propertiesOf(node)
  if (!title || !detail || (detail.type === 'Identifier' && !status)) return undefined
  const code = [status && valueText(status), valueText(title)].filter(Boolean).join(' ')
  return {
    shown: { code, text: renderPlaceholder(detail) },
    rest: [...innerOf(detail), ...Object.values(others)],
  }
}

/** Finds `log('warn', 'store-lost', { cause })`, and objects with a level and an event. */
function logLineIn(node: Node): Found | undefined {
  const { level, event, ...fields } = propertiesOf(node)
  if (level && event) return { shown: logLine(level, event, Object.keys(fields)), rest: [] }
  if (node.type !== 'CallExpression' || (node.callee as Node).name !== 'log') return undefined
  const [first, second, object] = node.arguments as Node[]
  if (!first || !second) return undefined
  return { shown: logLine(first, second, Object.keys(object ? propertiesOf(object) : {})), rest: [] }
}

function logLine(level: Node, event: Node, fields: readonly string[]): Message {
  return { code: `log ${valueText(level)}`, text: [`event ${valueText(event)}`, ...fields].join(', ') }
}

/** Finds `new AdminError('usage', '…')` and `report('path', '…')`. The code is the first argument. */
function codedMessageIn(node: Node): Found | undefined {
  if (node.type !== 'NewExpression' && node.type !== 'CallExpression') return undefined
  const [first, message, ...others] = node.arguments as Node[]
  const code = first?.type === 'Literal' ? first.value : undefined
  const text = message && render(message)
  if (typeof code !== 'string' || !/^[\w.-]+$/.test(code) || text === undefined || !isMessage(text))
    return undefined
  return { shown: { code, text }, rest: [...innerOf(message!), ...others] }
}

/** The properties of an object literal, by name. Spread objects have the name `…name`. */
function propertiesOf({ type, properties }: Node): Record<string, Node> {
  if (type !== 'ObjectExpression') return {}
  return Object.fromEntries(
    (properties as Node[]).map(property => {
      if (property.type === 'SpreadElement') return [`…${(property.argument as Node).name ?? ''}`, property]
      return [String((property.key as Node).name ?? (property.key as Node).value), property.value as Node]
    }),
  )
}

const valueText = (node: Node) => (node.type === 'Literal' ? String(node.value) : renderPlaceholder(node))

/** Types and imports contain no messages. */
function isSkipped({ type }: Node): boolean {
  if (type.startsWith('TS')) return !/^TS(?:As|Satisfies|NonNull)Expression$/.test(type)
  return /^(?:Import|ExportAll)Declaration$|^ImportExpression$/.test(type)
}

/** Several words, or one that begins or ends a sentence. Texts for programs do not count: Lua, modules, commands, names of headers. */
function isMessage(text: string): boolean {
  if (CODE.test(text) || !/\p{L}{2}/u.test(text.replaceAll(PLACEHOLDER, ''))) return false
  const words = text.replaceAll(PLACEHOLDER, '0')
  return /[\p{L}\d]\S*\s+\S*[\p{L}\d]|[ ]$|^[ ]|^[,;:] /su.test(words) || /^[A-Z]\p{L}+[.:…]$/u.test(text)
}

const PLACEHOLDER = /\$\{.*?\}/g

const CODE =
  /redis\.call|^#!|^(?!.*Write it like).*=>|[({]\s*$|^\s*(?:\/[/*]|--@|(?:local|import|export|end|do)\b[^.]*(?:\n|=|\{|default))|^(?:[A-Z][a-z]+|, X)-[\w-]+, |^(?:RateLimit|Origin|:authority)(?:,|$)|^# (?:HELP|TYPE)|^Bearer (?:realm|\$)|^,? (?:and|or) $|^(?:rule|candidate) \w+$/

/** @returns the text with placeholders, or undefined if the node is not a text */
function render(node: Node): string | undefined {
  if (node.type === 'Literal') return typeof node.value === 'string' ? node.value : undefined
  if (node.type === 'TemplateLiteral') {
    const texts = (node.quasis as { value: { cooked: string } }[]).map(({ value }) => value.cooked)
    const placeholders = (node.expressions as Node[]).map(renderPlaceholder)
    return texts.map((text, i) => text + (placeholders[i] ?? '')).join('')
  }
  if (!isSum(node)) return undefined
  const sides = [node.left as Node, node.right as Node]
  if (sides.every(side => render(side) === undefined)) return undefined
  return sides.map(side => render(side) ?? renderPlaceholder(side)).join('')
}

/** The placeholder of a value without a name. */
const UNKNOWN = `$\{…}`

const isSum = ({ type, operator }: Node) => type === 'BinaryExpression' && operator === '+'

function renderPlaceholder(node: Node): string {
  if (isChoice(node)) {
    const choices = choicesOf(node).map(renderPlaceholder)
    return choices.every(choice => choice === UNKNOWN) ? UNKNOWN : `{${choices.join('|')}}`
  }
  if (node.type === 'Identifier') return `\${${node.name}}`
  if (node.type === 'MemberExpression' && !node.computed) return `\${${(node.property as Node).name}}`
  if (node.type === 'TSNonNullExpression') return renderPlaceholder(node.expression as Node)
  // A text in color.
  if (node.type === 'CallExpression' && (node.callee as Node).type === 'Identifier') {
    const [only, ...others] = node.arguments as Node[]
    if (only?.type === 'Literal' && others.length === 0) return renderPlaceholder(only)
  }
  return render(node) ?? UNKNOWN
}

const isChoice = ({ type, operator }: Node) =>
  type === 'ConditionalExpression' || (type === 'LogicalExpression' && operator !== '&&')

/** The possible values: `b` and `c` for `a ? b : c`, and both sides of `a || b` and `a ?? b`. */
function choicesOf(node: Node): Node[] {
  if (!isChoice(node)) return [node]
  const choices =
    node.type === 'ConditionalExpression' ? [node.consequent, node.alternate] : [node.left, node.right]
  return (choices as Node[]).flatMap(choicesOf)
}

/** The expressions in a text that are not texts themselves, so `render` shows them only as placeholders. */
function innerOf(node: Node): Node[] {
  if (node.type === 'TemplateLiteral') return (node.expressions as Node[]).flatMap(innerOf)
  if (isSum(node)) return [node.left as Node, node.right as Node].flatMap(innerOf)
  if (isChoice(node)) return [...(node.test ? [node.test as Node] : []), ...choicesOf(node).flatMap(innerOf)]
  return render(node) === undefined ? [node] : []
}

function childrenOf(node: Node): Node[] {
  const children: Node[] = []
  for (const [key, value] of Object.entries(node)) {
    if (typeof value !== 'object' || value === null || (key === 'key' && !node.computed)) continue
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) children.push(child)
  }
  return children
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value
