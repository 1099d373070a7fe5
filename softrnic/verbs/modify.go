package verbs

// QPMask is a set of attributes of a queue pair, which a QPModify changes.
type QPMask uint16

// Attributes that Modify can change.
const (
	ModifyAccess QPMask = 1 << iota
	ModifyQKey
	ModifyRNRTimer
	ModifyTimeout
	ModifyRetryCount
	ModifyRNRRetry
	ModifyPKey
	ModifyDest
	ModifyMaxRdAtomic
	ModifyMaxDestRdAtomic
)

// ControlledQKey is the highest bit of a Q_Key. The system controls all Q_Keys with this bit, such
// as that of queue pair 1: an application may not set one. If the Q_Key of a work request has the
// bit, the Q_Key of the queue pair is sent instead (IBTA 10.2.5/q-key).
const ControlledQKey = 1 << 31

// QPModify has new values for attributes that a transition has set. Attributes without a bit in
// Mask keep their values; the fields are as in ToInit, ToRTR and ToRTS.
//
// In RTS, SQD and SQE the access rights of the peer, the Q_Key and the RNR timer can change; in SQD
// also the others (IBTA 11.2.5.2/optional). A queue pair has only the attributes that its service
// uses: UC has the rights, the P_Key and the destination, UD the Q_Key and the P_Key, RC all but the
// Q_Key. Package qpattr has the table.
type QPModify struct {
	Mask        QPMask
	Access      Access
	QKey        uint32
	MinRNRTimer uint8
	Timeout     uint8
	RetryCount  uint8
	RNRRetry    uint8
	PKeyIndex   int
	// Dest is the address of the peer, which may have moved; its queue pair stays the same.
	Dest                         AHAttr
	MaxRdAtomic, MaxDestRdAtomic int
}
