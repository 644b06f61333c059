package trace

// Code names a kind of issue. Codes are stable: scripts may test for them.
type Code string

// CodeInfo says what a code means and what can be done about it.
type CodeInfo struct {
	Code     Code
	Severity Severity
	Meaning  string // what was found and what became of the record
	Do       string // what the user can do
}

// The codes. [Codes] says what each means.
const (
	// Containers and bytes.
	EmptyInput        Code = "empty-input"
	UnknownFormat     Code = "unknown-format"
	NoRequests        Code = "no-requests"
	Truncated         Code = "truncated"
	BadCompression    Code = "bad-compression"
	BadFrame          Code = "bad-frame"
	BadJSON           Code = "bad-json"
	BadProtobuf       Code = "bad-protobuf"
	BadRow            Code = "bad-row"
	RecordTooLarge    Code = "record-too-large"
	InputTooLarge     Code = "input-too-large"
	TooManyOpen       Code = "too-many-open"
	InvalidUTF8       Code = "invalid-utf8"
	BadSpan           Code = "bad-span"
	BadField          Code = "bad-field"
	DuplicateKey      Code = "duplicate-key"
	BadID             Code = "bad-id"
	MissingIDs        Code = "missing-ids"
	MissingStart      Code = "missing-start"
	MissingEnd        Code = "missing-end"
	EndBeforeStart    Code = "end-before-start"
	TimeOutOfRange    Code = "time-out-of-range"
	DuplicateSpan     Code = "duplicate-span"
	ConflictingSpan   Code = "conflicting-span"
	SpanIDReused      Code = "span-id-reused"
	MissingParent     Code = "missing-parent"
	SelfParent        Code = "self-parent"
	ParentCycle       Code = "parent-cycle"
	ClockSkew         Code = "clock-skew"
	ClockAdjusted     Code = "clock-adjusted"
	PartialTrace      Code = "partial-trace"
	BadNumber         Code = "bad-number"
	NumberAsText      Code = "number-as-text"
	NegativeDuration  Code = "negative-duration"
	PhaseTooLong      Code = "phase-too-long"
	Inconsistent      Code = "inconsistent"
	NestedRequest     Code = "nested-request"
	HalfRequest       Code = "half-request"
	EngineAmbiguous   Code = "engine-ambiguous"
	EngineUnknown     Code = "engine-unknown"
	RequestIDReused   Code = "request-id-reused"
	MixedClocks       Code = "mixed-clocks"
	ForeignLine       Code = "foreign-line"
	BadLogLine        Code = "bad-log-line"
	YearAssumed       Code = "year-assumed"
	ZoneAssumed       Code = "zone-assumed"
	ImpossibleDate    Code = "impossible-date"
	ClockBackwards    Code = "clock-backwards"
	AmbiguousEnd      Code = "ambiguous-end"
	LostAtRestart     Code = "lost-at-restart"
	NoArrival         Code = "no-arrival"
	RequestLoggingOff Code = "request-logging-off"
	PreemptionSampled Code = "preemption-sampled"
	ServersMixed      Code = "servers-mixed"
	CopiedInput       Code = "copied-input"
	WrongUnit         Code = "wrong-unit"
	LogAndSpan        Code = "log-and-span"
	LogClock          Code = "log-clock"
	EngineUnmatched   Code = "engine-unmatched"
	MayCountTwice     Code = "may-count-twice"
	ReplicaInferred   Code = "replica-inferred"
	WarmUp            Code = "warm-up"
	SentLate          Code = "sent-late"
	UnreadField       Code = "unread-field"
)

// Codes is every code, in the order in which check explains them.
var Codes = []CodeInfo{
	{EmptyInput, Dropped, "the input has no bytes, or only blank ones", "check that the exporter or the engine really wrote to this file"},
	{UnknownFormat, Dropped, "the content is none of the formats that are read", "see the README's table of formats; convert the file, or name the right one"},
	{NoRequests, Dropped, "the format was recognised, but no request was found in it", "check that tracing or request logging was on, and that this is the engine's file"},
	{Truncated, Dropped, "the input stops in the middle of a record; all before it counts", "let the writer close the file before copying it, or ignore the torn record"},
	{BadCompression, Dropped, "the compressed data or the archive is damaged; what was read before it counts", "copy the file again"},
	{BadFrame, Dropped, "a message length does not fit the data; reading resumed where it could", "copy the file again; check that only one process writes to it"},
	{BadJSON, Dropped, "a piece of the input is not valid JSON and was skipped", "look at the position; the exporter may have been cut off there"},
	{BadProtobuf, Dropped, "a protobuf message is malformed; its readable spans count", "look at the position; the exporter may have been cut off there"},
	{BadRow, Dropped, "a line of a CSV table has not as many cells as its header, or a quote without an end, and was left out", "look at the position; write one line a request"},
	{RecordTooLarge, Dropped, "one record is larger than the limit and was skipped", "raise --max-record if it is genuine"},
	{InputTooLarge, Dropped, "the decompressed input passes the limit; the rest was not read", "raise --max-input if it is genuine"},
	{TooManyOpen, Degraded, "more traces were open than the limit; the oldest were closed without what came later", "sort the input by trace or raise --max-open"},
	{InvalidUTF8, Degraded, "a text is not valid UTF-8; the bad bytes read as U+FFFD", "fix the exporter's encoding if the text matters"},
	{BadSpan, Dropped, "a span cannot be read and was left out", "look at the position; report it to the exporter's authors"},
	{BadField, Degraded, "a field has the wrong type and was left out", "look at the position; report it to the exporter's authors"},
	{DuplicateKey, Degraded, "one object has a key twice; of spans the last was used, of a record of its own neither", "report it to the exporter's authors"},
	{BadID, Note, "an id is not hexadecimal or not of the right length; it was used as it stands", "nothing, unless spans fail to join"},
	{MissingIDs, Note, "a span has no trace or span id; it was taken as a span of its own", "nothing, unless duplicates or parents matter"},
	{MissingStart, Degraded, "a span has no start time", "report it to the exporter's authors"},
	{MissingEnd, Degraded, "a span has no end time: the request is counted as incomplete", "take the trace after the requests have ended"},
	{EndBeforeStart, Degraded, "a span ends before it starts: its end is not believed and the request counts as incomplete", "check the clock of that host"},
	{TimeOutOfRange, Degraded, "a time does not fit int64 nanoseconds, or makes a span longer than a year, and was left out", "report it to the exporter's authors"},
	{DuplicateSpan, Note, "the same span was exported more than once; it counts once", "nothing: exporters retry"},
	{ConflictingSpan, Degraded, "one span id has two different contents; the first was used", "look for retries of an unfinished span, or two writers with one id"},
	{SpanIDReused, Note, "a span id stands again for another time: both count", "nothing: engines that seed their ids repeat them after a restart"},
	{MissingParent, Note, "a span names a parent that is not in the input", "add the parent's file if the time outside the engine matters"},
	{SelfParent, Note, "a span is its own parent; the link was ignored", "report it to the exporter's authors"},
	{ParentCycle, Note, "spans are each other's parents; the links were ignored", "report it to the exporter's authors"},
	{ClockSkew, Degraded, "the clocks of two services differ: one constant puts all their spans inside those around them, and all were moved by it; or none does, and only a served request that would begin before its call was put at the call's start. No duration changed", "synchronise the hosts' clocks"},
	{ClockAdjusted, Degraded, "the trace's store moved the span by its own estimate of clock skew: its place is not what was measured", "take the trace from the collector, or have the store leave clocks alone (Jaeger: max-clock-skew-adjustment 0)"},
	{PartialTrace, Degraded, "the trace's store says that it gave only a part of the trace", "ask for the trace again without a filter, or raise the store's limit"},
	{BadNumber, Degraded, "a number is not finite or cannot be read; it counts as not reported", "report it to the engine's authors"},
	{NumberAsText, Note, "a number was written as text and read as a number", "nothing"},
	{NegativeDuration, Degraded, "a duration is below zero; it counts as not reported", "nothing: the engine did not reach that point of the request, or reset its clock"},
	{PhaseTooLong, Degraded, "a phase is longer than its request; it counts as not reported", "nothing: the engine never stamped the phase's begin"},
	{Inconsistent, Degraded, "the phases claim more time than the request took, or the same time twice", "distrust this request's split; see the columns overlap_ns, outside_ns, conflict_ns"},
	{NestedRequest, Note, "a request span lies inside another; they count as one request", "nothing, unless both are requests of their own: then give them separate traces"},
	{HalfRequest, Degraded, "of a request that ran on a prefill and a decode engine only one engine's span is there, or the two are in traces of their own", "add the other engine's file, and let the router pass on the trace's context"},
	{EngineAmbiguous, Note, "several engines write spans like this; read with what is true of all", "state the engine's scope name in the exporter"},
	{EngineUnknown, Note, "no engine was recognised: end-to-end time only, all of it unattributed", "see the README's table of engines"},
	{RequestIDReused, Note, "a request id stands for more than one request", "nothing: clients may choose ids"},
	{MixedClocks, Degraded, "requests on different clocks: no rates and no concurrency over all", "report the inputs apart"},
	{ForeignLine, Note, "a line is not of this log's format and was passed over", "nothing: other programs share the stream"},
	{BadLogLine, Degraded, "a line of the engine could not be read whole", "look at the position"},
	{YearAssumed, Note, "the log's stamps have no year; it was taken from the source named", "give --year, or a log with the container's own stamps"},
	{ZoneAssumed, Note, "stamps have no time zone; read as UTC", "give --zone where the server's clock is another"},
	{ImpossibleDate, Degraded, "a stamp is no date of that year; the line counts without a time", "give the right --year"},
	{ClockBackwards, Note, "stamps go back in time by more than the clock's step", "check whether several processes share the log"},
	{AmbiguousEnd, Degraded, "an end names an id that more than one running request has; none was ended by it", "give requests ids of their own"},
	{LostAtRestart, Degraded, "the server restarted while the request ran; its end is not known", "nothing: it was lost"},
	{NoArrival, Degraded, "an end without a begin: the log starts later, the line is missing, or the record has durations only", "take the log from before the requests began"},
	{RequestLoggingOff, Note, "the log has statistics but no request lines", "start vLLM with --enable-log-requests, or use its spans"},
	{PreemptionSampled, Note, "the engine reports only every fiftieth preemption", "use the engine's counter for their number"},
	{ServersMixed, Degraded, "several servers write to one log and no line names them: readings and ids of all count as one server's", "take each server's log into a file of its own, or with its container's name (kubectl logs --prefix, docker compose logs)"},
	{CopiedInput, Note, "an input tells the very same as another one and was left out", "nothing, or name it once"},
	{WrongUnit, Degraded, "durations or times seem to be written in another unit than the format's; they were left as they are", "divide or multiply them where they are written; distrust every time until then"},
	{LogAndSpan, Note, "a log tells of requests that spans tell of too; they count once, as the spans tell them", "nothing"},
	{LogClock, Degraded, "a log's stamps are far off the spans' of the same requests; its instants were left as they are", "give the --zone, or the --year, of the log"},
	{MayCountTwice, Degraded, "a log and spans without an id may tell of the same requests, such as those that clients left; nothing says which, and they count twice", "count aborted and refused requests in a report without the callers' spans, or without the log"},
	{EngineUnmatched, Note, "it is not certain of which replica of the spans a log is; its limits and readings are shown apart", "name the replicas alike (service.instance.id and the container), or read the files of one replica alone"},
	{ReplicaInferred, Note, "a log does not name its server; its file's name stands for it", "nothing, or give the files other names"},
	{WarmUp, Note, "requests of a load generator's warm-up were left out", "nothing"},
	{SentLate, Note, "requests were sent later than their client meant to: latencies count from the sending, not from the plan", "judge what users would have waited with the attribute sent_late_ns added; give the client more connections"},
	{UnreadField, Note, "records have members, or a table has columns, that are not read", "see docs/own-records.md for the names of records of one's own that are; nothing, if they do not matter"},
}

var codeInfo = func() map[Code]CodeInfo {
	m := make(map[Code]CodeInfo, len(Codes))
	for _, c := range Codes {
		m[c.Code] = c
	}
	return m
}()

// Info returns what [Codes] says of c; for a code that is not in it, a Note
// with no text.
func (c Code) Info() CodeInfo {
	if i, ok := codeInfo[c]; ok {
		return i
	}
	return CodeInfo{Code: c}
}
