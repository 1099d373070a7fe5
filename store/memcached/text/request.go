package text

// Verb is the command of a Request.
type Verb uint8

// Verbs. None is the verb of requests whose command is unknown.
const (
	None Verb = iota
	Set
	Add
	Replace
	Append
	Prepend
	Cas
	Get
	Gets
	Delete
	Incr
	Decr
	FlushAll
	Stats
	Version
	Verbosity
	Quit
)

// form says what follows a command on its line.
type form uint8

const (
	formData   form = iota // KEY FLAGS EXPTIME BYTES [UNIQUE] [noreply], and data after the line
	formKeys               // KEY...
	formDelete             // KEY [0] [noreply]
	formCount              // KEY DELTA [noreply]
	formNumber             // [NUMBER] [noreply]
	formLevel              // NUMBER [noreply]
	formNone               // nothing
	formAny                // anything
)

var commands = map[string]struct {
	verb Verb
	form form
}{
	"set": {Set, formData}, "add": {Add, formData}, "replace": {Replace, formData},
	"append": {Append, formData}, "prepend": {Prepend, formData}, "cas": {Cas, formData},
	"get": {Get, formKeys}, "gets": {Gets, formKeys},
	"delete": {Delete, formDelete}, "incr": {Incr, formCount}, "decr": {Decr, formCount},
	"flush_all": {FlushAll, formNumber}, "verbosity": {Verbosity, formLevel},
	"stats": {Stats, formAny}, "version": {Version, formNone}, "quit": {Quit, formNone},
}

// Request is one command of a client. Its slices are valid until the next call of a method of the
// Decoder.
type Request struct {
	Verb Verb
	// Keys are the keys of Get and Gets, in the client's order; other commands have at most one
	// key.
	Keys [][]byte
	// Flags belong to the client and are stored with the data. Exptime is in seconds, or a Unix
	// time if it is longer than 30 days; 0 means never. FlushAll has its delay in Exptime.
	Flags   uint32
	Exptime int64
	Data    []byte
	// Unique is the version that an item must have for Cas to replace it.
	Unique uint64
	// Delta is what Incr adds and Decr subtracts.
	Delta uint64
	Args  [][]byte
	// NoReply is true if the client wants no answer, and no Refusal either.
	NoReply bool
	// Refusal is the answer if the request cannot be executed; "" otherwise.
	Refusal string
	// More is true if the line of a Get or Gets goes on: the next request has further keys of this
	// line, if there are any. If a key is refused, the rest of the line is skipped.
	More bool
	// Last is true if nothing can be decoded after the request, so that the connection must be
	// closed.
	Last bool
}
