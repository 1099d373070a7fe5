package conform

// Rule is a rule of the protocol.
type Rule struct {
	Name    string
	Section string // of the specification
	Text    string // what holds
}

// The rules, in the order in which a packet is held against them.
var (
	Format     = Rule{"format", "IBTA 9.2", "a packet has the headers of its opcode, and a payload of whole words"}
	Opcode     = Rule{"opcode", "IBTA 9.2", "the opcode is one of the service"}
	ICRC       = Rule{"icrc", "IBTA 7.8.1", "the invariant CRC is right"}
	Version    = Rule{"version", "IBTA 9.2", "the transport version is 0"}
	Reserved   = Rule{"reserved", "IBTA 9.2", "reserved bits are 0"}
	QueuePair  = Rule{"queue-pair", "IBTA 9.2", "queue pairs 0 and 1 and the multicast number take datagrams only"}
	Solicited  = Rule{"solicited", "IBTA 9.2.3", "only the end of a SEND, or of a WRITE with immediate data, is solicited"}
	Management = Rule{"management", "IBTA 13.4.2", "a datagram to queue pair 1 has the well-known Q_Key and a message of 256 bytes"}
	Answer     = Rule{"answer", "IBTA 12.6", "a message of the connection manager answers one that was sent"}

	Start     = Rule{"start", "IBTA 12.7.31", "the first PSN is the one on which the connection manager has agreed"}
	PSN       = Rule{"psn", "IBTA 9.7.1", "a request has the PSN behind the one before it; a READ takes one for each answer"}
	Copy      = Rule{"copy", "IBTA 9.7.4.1/duplicate", "a request that is sent again is the same packet"}
	Part      = Rule{"part", "IBTA 9.7.6.1", "a READ that is sent again from the middle asks for the rest of it"}
	Sequence  = Rule{"sequence", "IBTA 9.7.4.1/sequence", "first, middle and last packets of a message follow each other"}
	MTU       = Rule{"mtu", "IBTA 9.7.4.1/length", "first and middle packets have the length of the path MTU, others at most that"}
	Length    = Rule{"length", "IBTA 9.7.4.1/length", "a WRITE has as many bytes as its first packet says, at most 2 GiB"}
	Alignment = Rule{"alignment", "IBTA 9.4.5/alignment", "an atomic is executed only at an address of whole 8 bytes"}
	Depth     = Rule{"depth", "IBTA 9.7.3/depth", "no more READs and atomics are unanswered than agreed"}

	Syndrome    = Rule{"syndrome", "IBTA 9.7.5.1.2/reserved", "the syndrome is an ACK, an RNR NAK or a NAK with a known code"}
	Positive    = Rule{"positive", "IBTA 9.7.5.1/positive", "an answer with data is positive"}
	Unsent      = Rule{"unsent", "IBTA 9.7.6.1/ghost", "only a request that was sent is answered"}
	Missing     = Rule{"missing", "IBTA 9.7.5/in-order", "an ACK acknowledges no request that has not arrived"}
	Kind        = Rule{"kind", "IBTA 9.7.5.1/positive", "a READ is answered by READ responses, an atomic by its original value, others by an ACK"}
	ReadOrder   = Rule{"read-order", "IBTA 9.7.5.1", "READ responses begin with the first and end with the last, or there is only one"}
	ReadLength  = Rule{"read-length", "IBTA 9.7.5.1", "READ responses have the path MTU, the last one the rest"}
	Backward    = Rule{"backward", "IBTA 9.7.5/in-order", "answers are in the order of the requests; only a duplicate is answered again"}
	MSN         = Rule{"msn", "IBTA 9.7.7.1", "the MSN counts the messages that are complete"}
	NakRange    = Rule{"nak-range", "IBTA 9.7.5/nak-acknowledges", "a sequence NAK asks for the oldest PSN that is missing"}
	OneNak      = Rule{"one-nak", "IBTA 9.7.5/one-nak", "a missing PSN is asked for once, until it comes"}
	NakCode     = Rule{"nak-code", "IBTA 9.7.5/codes", "a NAK has a code that fits the request"}
	RNR         = Rule{"rnr", "IBTA 9.7.5.2.8", "an RNR NAK refuses a request that needs a receive or a resource"}
	AfterNak    = Rule{"after-nak", "IBTA 9.9.3/fatal", "behind a fatal NAK nothing is answered"}
	Replay      = Rule{"replay", "IBTA 9.7.4.1/duplicate", "an atomic that is sent again is answered with the same original value"}
	Credits     = Rule{"credits", "IBTA 9.7.7.2", "all ACKs carry credits, or none"}
	Service     = Rule{"service", "IBTA 9.2.1", "all requests of a queue pair, and the answers to them, are of one service"}
	SharedQueue = Rule{"shared-queue", "IBTA A14", "the packets of one message of XRC name one shared receive queue"}
	Unreliable  = Rule{"unreliable", "IBTA 9.8.2.2.1", "a PSN of an unreliable connection is used once"}
)

// Rules returns all rules.
func Rules() []Rule {
	return []Rule{
		Format, Opcode, ICRC, Version, Reserved, QueuePair, Solicited, Management, Answer, Start, PSN, Copy, Part, Sequence, MTU,
		Length, Alignment, Depth, Syndrome, Positive, Unsent, Missing, Kind, ReadOrder, ReadLength, Backward, MSN, NakRange, OneNak,
		NakCode, RNR, AfterNak, Replay, Credits, Service, SharedQueue, Unreliable,
	}
}
