package verbs

// QPMask is a set of attributes of a queue pair, which a QPModify changes.
type QPMask uint8

// Attributes that Modify can change.
const (
	ModifyAccess QPMask = 1 << iota
	ModifyQKey
	ModifyRNRTimer
	ModifyTimeout
	ModifyRetryCount
	ModifyRNRRetry
)

// ControlledQKey is the highest bit of a Q_Key. The system controls all Q_Keys with this bit, such
// as that of queue pair 1: an application may not set one. If the Q_Key of a work request has the
// bit, the Q_Key of the queue pair is sent instead (IBTA 10.2.5/q-key).
const ControlledQKey = 1 << 31

// QPModify has new values for attributes that a transition has set. Attributes without a bit in
// Mask keep their values; the fields are as in ToInit, ToRTR and ToRTS.
//
// In RTS, SQD and SQE the access rights of the peer, the Q_Key and the RNR timer can change; in SQD
// also the timeout and both retry counts (IBTA 11.2.5.2/optional). A queue pair has only the
// attributes that its service uses: UC has the rights, UD the Q_Key, RC all but the Q_Key.
type QPModify struct {
	Mask        QPMask
	Access      Access
	QKey        uint32
	MinRNRTimer uint8
	Timeout     uint8
	RetryCount  uint8
	RNRRetry    uint8
}
