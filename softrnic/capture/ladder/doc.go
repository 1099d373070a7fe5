// Package ladder turns the packets of a capture into the rows of a ladder diagram: lifelines of hosts
// and of the switch, and an arrow for each packet. A Model takes packets and keeps rows; WriteText
// prints them. The package has no clock and opens no file.
package ladder
