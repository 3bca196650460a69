from headerware.sources.ready.files import Files as Files
from headerware.sources.ready.http_pages import HttpPages as HttpPages
from headerware.sources.ready.objects import ObjectStorage as ObjectStorage
from headerware.sources.ready.sql import SqlTables as SqlTables
