// Package conform holds the packets of a capture against the rules of the protocol. Check walks the flows of
// a flows.Book, as each tap of the capture has seen them, through the states of requester and responder, and
// returns the first packet of each that breaks a rule, with the rule.
//
// A capture does not show everything: it can begin in the middle, and packets can be lost before they pass the
// tap. Check reports only what no loss explains. Packets that a comment names as dropped, and those with a
// wrong ICRC, have not arrived. The order of answers is not checked in a flow of which a comment says that a
// fault has delayed, doubled or changed a packet. Payloads of messages are not compared.
package conform
