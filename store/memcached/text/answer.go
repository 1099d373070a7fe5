package text

import "strconv"

// Answers that are one line, without the end of the line.
const (
	Stored     = "STORED"
	NotStored  = "NOT_STORED"
	Exists     = "EXISTS"
	NotFound   = "NOT_FOUND"
	Deleted    = "DELETED"
	OK         = "OK"
	End        = "END"
	Unknown    = "ERROR"
	TooLarge   = "SERVER_ERROR object too large for cache"
	NoRoom     = "SERVER_ERROR out of memory storing object"
	NotNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value"

	badLine  = "CLIENT_ERROR bad command line format"
	badData  = "CLIENT_ERROR bad data chunk"
	longLine = "CLIENT_ERROR line too long"
	binary   = "CLIENT_ERROR this server speaks the text protocol only"
)

const lineEnd = "\r\n"

// AppendLine appends an answer of one line.
func AppendLine(b []byte, line string) []byte { return append(append(b, line...), lineEnd...) }

// AppendNumber appends the answer to Incr and Decr.
func AppendNumber(b []byte, n uint64) []byte { return append(strconv.AppendUint(b, n, 10), lineEnd...) }

// AppendValue appends an item that Get has found. After the last item the caller appends the line
// End.
func AppendValue(b, key []byte, flags uint32, data []byte) []byte {
	return appendData(appendHead(b, key, flags, len(data)), data)
}

// AppendUniqueValue appends an item that Gets has found, with its version.
func AppendUniqueValue(b, key []byte, flags uint32, data []byte, unique uint64) []byte {
	b = append(appendHead(b, key, flags, len(data)), ' ')
	return appendData(strconv.AppendUint(b, unique, 10), data)
}

func appendHead(b, key []byte, flags uint32, n int) []byte {
	b = append(append(append(b, "VALUE "...), key...), ' ')
	b = append(strconv.AppendUint(b, uint64(flags), 10), ' ')
	return strconv.AppendInt(b, int64(n), 10)
}

func appendData(b, data []byte) []byte {
	return append(append(append(b, lineEnd...), data...), lineEnd...)
}

// AppendStat appends a line of the answer to Stats. After the last line the caller appends the line
// End.
func AppendStat(b []byte, name, value string) []byte {
	return AppendLine(b, "STAT "+name+" "+value)
}
