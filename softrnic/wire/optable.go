package wire

// Headers is the set of extended headers that follow a BTH. In a packet they are in the order of
// these bits.
type Headers uint16

// Extended headers.
const (
	HasDETH Headers = 1 << iota
	HasXRCETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAckETH
	HasImmDt
	HasIETH
	HasCNP
	HasAtomicMasks
)

// OpFlags are properties of an opcode; see Opcode.Is.
type OpFlags uint16

// Flags of an opcode. First, middle, last and only are the place of a packet in its message. An
// opcode whose messages always have one packet (a READ request, an acknowledgement, an atomic) has
// OpOnly.
const (
	OpRequest  OpFlags = 1 << iota // sent to the responder
	OpResponse                     // sent to the requester
	OpFirst
	OpMiddle
	OpLast
	OpOnly
	OpPayload // may carry payload
	OpSend    // uses a receive at the responder; WRITEs with OpImm do, too
	OpWrite
	OpRead    // READ request or response
	OpAtomic  // CMP_SWAP and FETCH_ADD, masked or not, and their response; also ATOMIC_WRITE, whose header is a RETH
	OpAck     // a response with an AETH and no payload: ACK, NAK, ATOMIC_ACK
	OpImm     // carries immediate data
	OpInv     // invalidates a remote key
	OpControl // congestion notification
	OpFlush
)

// OpAnswered selects the requests that only a READ response or an ATOMIC_ACK completes; an ACK does
// not.
const OpAnswered = OpRead | OpAtomic | OpFlush

// OpInfo is an entry of the opcode table.
type OpInfo struct {
	// Name is a name like "RC_WRITE_LAST"; empty for an opcode that is not in the table.
	Name    string
	Headers Headers
	Flags   OpFlags
	// HeaderLen is the length of BTH and extended headers in bytes.
	HeaderLen int
}

// Combinations of flags that several entries of the table have.
const (
	reqFirst   = OpRequest | OpFirst | OpPayload
	reqMiddle  = OpRequest | OpMiddle | OpPayload
	reqLast    = OpRequest | OpLast | OpPayload
	reqOnly    = OpRequest | OpOnly | OpPayload
	readAnswer = OpResponse | OpRead | OpPayload
)

// opTable is the opcode table of IBTA 9.2 for the services that this codec knows. Each opcode has
// its extended headers (IBTA 9.3). The table also has FLUSH and ATOMIC_WRITE of the memory
// placement extensions, the CNP of A17.9.3, and masked atomics.
var opTable = withHeaderLen(withXRC([256]OpInfo{
	RCSendFirst:          {Name: "RC_SEND_FIRST", Flags: reqFirst | OpSend},
	RCSendMiddle:         {Name: "RC_SEND_MIDDLE", Flags: reqMiddle | OpSend},
	RCSendLast:           {Name: "RC_SEND_LAST", Flags: reqLast | OpSend},
	RCSendLastImm:        {Name: "RC_SEND_LAST_IMM", Headers: HasImmDt, Flags: reqLast | OpSend | OpImm},
	RCSendOnly:           {Name: "RC_SEND_ONLY", Flags: reqOnly | OpSend},
	RCSendOnlyImm:        {Name: "RC_SEND_ONLY_IMM", Headers: HasImmDt, Flags: reqOnly | OpSend | OpImm},
	RCSendLastInv:        {Name: "RC_SEND_LAST_INV", Headers: HasIETH, Flags: reqLast | OpSend | OpInv},
	RCSendOnlyInv:        {Name: "RC_SEND_ONLY_INV", Headers: HasIETH, Flags: reqOnly | OpSend | OpInv},
	RCWriteFirst:         {Name: "RC_WRITE_FIRST", Headers: HasRETH, Flags: reqFirst | OpWrite},
	RCWriteMiddle:        {Name: "RC_WRITE_MIDDLE", Flags: reqMiddle | OpWrite},
	RCWriteLast:          {Name: "RC_WRITE_LAST", Flags: reqLast | OpWrite},
	RCWriteLastImm:       {Name: "RC_WRITE_LAST_IMM", Headers: HasImmDt, Flags: reqLast | OpWrite | OpImm},
	RCWriteOnly:          {Name: "RC_WRITE_ONLY", Headers: HasRETH, Flags: reqOnly | OpWrite},
	RCWriteOnlyImm:       {Name: "RC_WRITE_ONLY_IMM", Headers: HasRETH | HasImmDt, Flags: reqOnly | OpWrite | OpImm},
	RCReadRequest:        {Name: "RC_READ_REQUEST", Headers: HasRETH, Flags: OpRequest | OpOnly | OpRead},
	RCReadResponseFirst:  {Name: "RC_READ_RESPONSE_FIRST", Headers: HasAETH, Flags: readAnswer | OpFirst},
	RCReadResponseMiddle: {Name: "RC_READ_RESPONSE_MIDDLE", Flags: readAnswer | OpMiddle},
	RCReadResponseLast:   {Name: "RC_READ_RESPONSE_LAST", Headers: HasAETH, Flags: readAnswer | OpLast},
	RCReadResponseOnly:   {Name: "RC_READ_RESPONSE_ONLY", Headers: HasAETH, Flags: readAnswer | OpOnly},
	RCAck:                {Name: "RC_ACK", Headers: HasAETH, Flags: OpResponse | OpOnly | OpAck},
	RCAtomicAck:          {Name: "RC_ATOMIC_ACK", Headers: HasAETH | HasAtomicAckETH, Flags: OpResponse | OpOnly | OpAck | OpAtomic},
	RCCmpSwap:            {Name: "RC_CMP_SWAP", Headers: HasAtomicETH, Flags: OpRequest | OpOnly | OpAtomic},
	RCFetchAdd:           {Name: "RC_FETCH_ADD", Headers: HasAtomicETH, Flags: OpRequest | OpOnly | OpAtomic},
	RCFlush:              {Name: "RC_FLUSH", Headers: HasFETH | HasRETH, Flags: OpRequest | OpOnly | OpFlush},
	RCAtomicWrite:        {Name: "RC_ATOMIC_WRITE", Headers: HasRETH, Flags: reqOnly | OpAtomic},

	RCMaskedCmpSwap:  {Name: "RC_MASKED_CMP_SWAP", Headers: HasAtomicETH | HasAtomicMasks, Flags: OpRequest | OpOnly | OpAtomic},
	RCMaskedFetchAdd: {Name: "RC_MASKED_FETCH_ADD", Headers: HasAtomicETH | HasAtomicMasks, Flags: OpRequest | OpOnly | OpAtomic},

	UCSendFirst:    {Name: "UC_SEND_FIRST", Flags: reqFirst | OpSend},
	UCSendMiddle:   {Name: "UC_SEND_MIDDLE", Flags: reqMiddle | OpSend},
	UCSendLast:     {Name: "UC_SEND_LAST", Flags: reqLast | OpSend},
	UCSendLastImm:  {Name: "UC_SEND_LAST_IMM", Headers: HasImmDt, Flags: reqLast | OpSend | OpImm},
	UCSendOnly:     {Name: "UC_SEND_ONLY", Flags: reqOnly | OpSend},
	UCSendOnlyImm:  {Name: "UC_SEND_ONLY_IMM", Headers: HasImmDt, Flags: reqOnly | OpSend | OpImm},
	UCWriteFirst:   {Name: "UC_WRITE_FIRST", Headers: HasRETH, Flags: reqFirst | OpWrite},
	UCWriteMiddle:  {Name: "UC_WRITE_MIDDLE", Flags: reqMiddle | OpWrite},
	UCWriteLast:    {Name: "UC_WRITE_LAST", Flags: reqLast | OpWrite},
	UCWriteLastImm: {Name: "UC_WRITE_LAST_IMM", Headers: HasImmDt, Flags: reqLast | OpWrite | OpImm},
	UCWriteOnly:    {Name: "UC_WRITE_ONLY", Headers: HasRETH, Flags: reqOnly | OpWrite},
	UCWriteOnlyImm: {Name: "UC_WRITE_ONLY_IMM", Headers: HasRETH | HasImmDt, Flags: reqOnly | OpWrite | OpImm},

	UDSendOnly:    {Name: "UD_SEND_ONLY", Headers: HasDETH, Flags: reqOnly | OpSend},
	UDSendOnlyImm: {Name: "UD_SEND_ONLY_IMM", Headers: HasDETH | HasImmDt, Flags: reqOnly | OpSend | OpImm},

	CNP: {Name: "CNP", Headers: HasCNP, Flags: OpOnly | OpControl},
}))

// withXRC adds the opcodes of extended reliable connections: those of reliable connections, with an
// XRCETH in all requests (annex A14). FLUSH and ATOMIC_WRITE are not among them.
func withXRC(table [256]OpInfo) [256]OpInfo {
	for op := RCSendFirst; op <= RCSendOnlyInv; op++ {
		info := table[op]
		if info.Name == "" {
			continue
		}
		info.Name = "X" + info.Name
		if info.Flags&OpRequest != 0 {
			info.Headers |= HasXRCETH
		}
		table[ServiceXRC|op] = info
	}
	return table
}

// headerLens are the lengths of the extended headers, in the order of the bits of Headers.
var headerLens = [11]int{dethLen, xrcETHLen, fethLen, rethLen, atomicETHLen, aethLen, atomicAckETHLen, immDtLen, iethLen, cnpLen, atomicMasksLen}

// withHeaderLen sets HeaderLen. An opcode that is not in the table is parsed as a BTH with opaque
// payload.
func withHeaderLen(table [256]OpInfo) [256]OpInfo {
	for i := range table {
		info := &table[i]
		if info.Name == "" {
			info.Flags = OpPayload
		}
		info.HeaderLen = bthLen
		for bit, n := range headerLens {
			if info.Headers&(1<<bit) != 0 {
				info.HeaderLen += n
			}
		}
	}
	return table
}
